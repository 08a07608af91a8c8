"""The verdict as a checklist: which writes should there have been, and which were there."""
