"""What every part of quell uses: files written whole, names, extras, the console."""
