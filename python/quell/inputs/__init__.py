"""What a user gives: scenario keys and short cuts, lines of tc, files of Flent, captures."""
