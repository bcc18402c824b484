"""`quell tune`: search the queue settings for a user's line, and print lines to paste."""
