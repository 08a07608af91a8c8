"""What a dream without recordings goes by is said as it is."""

from pathlib import Path

from each_row import each_row

from dreamgym_kit.cli.running import opened_recordings
from dreamgym_kit.settings.schema import ExperienceSettings, Settings


@each_row(
    ("urls", "said"),
    [((), "so the dream can answer nothing;"), (("http://m/v1",), "so the dream asks its model alone;")],
)
def test_a_dream_with_a_model_is_not_said_to_answer_nothing(urls, said, tmp_path: Path, capsys) -> None:
    settings = Settings(buffer=tmp_path / "none.db", experience=ExperienceSettings(urls=urls, model="m"))
    with opened_recordings(settings) as opened:
        assert opened is None
    assert said in capsys.readouterr().err
