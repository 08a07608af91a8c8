"""Which host the settings want workers on."""

from dreamgym_kit.adapters.engines.processes import Processes
from dreamgym_kit.adapters.engines.ray_cluster import checked_address
from dreamgym_kit.adapters.engines.ray_workers import RayHost
from dreamgym_kit.errors import UserError, require_extra
from dreamgym_kit.interfaces import WorkerHost
from dreamgym_kit.settings.schema import WorkersSettings


def check_engine(settings: WorkersSettings) -> None:
    """Refuse an engine that cannot be used as it was said, before anything is made; starts and joins nothing.

    Raises:
        MissingExtra: Ray is not installed.
        UserError: there is no such engine, or its address cannot be used.
    """
    if settings.backend == "ray":
        require_extra("ray", needed_by='workers.backend = "ray"')
        checked_address(settings.address)
        return
    if settings.backend != "local":
        raise UserError(f"workers.backend: there is no engine {settings.backend!a}; known: local, ray.")
    if settings.address is not None:
        raise UserError(
            f'workers.address = "{settings.address}": is for workers.backend = "ray", and this is local. '
            "Nothing was run."
        )


def host_of(settings: WorkersSettings, workers: int) -> WorkerHost:
    """Where so many workers are started. Raises as `check_engine`."""
    check_engine(settings)
    return RayHost(workers, address=settings.address) if settings.backend == "ray" else Processes()
