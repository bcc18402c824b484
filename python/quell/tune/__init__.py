"""`quell tune`: search queue settings for a user's line and print the lines to paste."""
