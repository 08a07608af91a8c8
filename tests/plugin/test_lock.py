"""`dreamgym.lock` where a project has no dreamgym.toml."""


def test_the_lock_of_a_named_graph_stands_beside_its_cassettes(project, run, touched, monkeypatch) -> None:
    project.makepyfile(
        test_orders="""
        def test_spec(dream):
            dream.run("agent:graph", "cancel o1", mocks={"cancel_order": "ok", "get_order": {}})
        """
    )
    (project.path / "cassettes" / "test_orders").mkdir(parents=True)
    run().assert_outcomes(passed=1)
    (lock,) = project.path.rglob("dreamgym.lock")
    assert lock.parent.parent == project.path / "cassettes"
    lock.write_text(lock.read_text().replace('cancel_order = { digest = "', 'cancel_order = { digest = "0'))
    monkeypatch.setenv("CI", "true")
    said = run()
    said.assert_outcomes(failed=1)
    said.stdout.fnmatch_lines(["*~ cancel_order: schema or annotations*"])
    assert touched() == []
