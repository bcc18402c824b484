"""User input: scenario keys and shortcuts, lines of tc, files of Flent, captures."""
