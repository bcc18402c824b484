"""Shared parts of quell: atomic files, names, extras, the console."""
