"""Checkpoints of TRL's trainers in our form: made beside their place, sealed, renamed into it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import Trainer

from dreamgym_kit.adapters.trainers.checkpoints import Checkpoints
from dreamgym_kit.errors import RunDirectoryError
from dreamgym_kit.plain import JsonValue


class SealsCheckpoints(Trainer):  # type: ignore[misc]  # their types are not read
    """Mixed into a trainer; `kit_checkpoints` and `kit_made_of` are set before it trains."""

    kit_checkpoints: Checkpoints
    kit_made_of: Mapping[str, JsonValue]
    _place: Path | None = None

    @property
    def kit_step(self) -> int:
        """What a checkpoint is named after: steps so far."""
        return int(self.state.global_step)

    def _get_output_dir(self, trial: Any) -> Any:
        return str(self._place) if self._place is not None else super()._get_output_dir(trial)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        kept = self.kit_checkpoints
        self._place = kept.incoming
        try:
            if self.args.should_save:
                kept.clear_incoming()
            self.accelerator.wait_for_everyone()
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                made = kept.incoming / f"checkpoint-{self.state.global_step}"
                (made / "training_args.bin").unlink(missing_ok=True)  # a pickle that nothing reads
                kept.commit(made, self.kit_step, self.kit_made_of)
        except (OSError, RuntimeError, SafetensorError) as error:  # torch and safetensors raise their own
            raise RunDirectoryError(
                f"{kept.folder}: the checkpoint of step {self.kit_step} cannot be written "
                f"({str(error).strip().partition(chr(10))[0][:200]}); free some space or mend the disk, "
                "then resume."
            ) from error
        finally:
            self._place = None
        self.accelerator.wait_for_everyone()

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """None: TRL's would say nothing of where the data comes from; ours is written with the weights."""
