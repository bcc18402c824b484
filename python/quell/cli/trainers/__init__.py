"""The commands of `quell train`, one file each."""
