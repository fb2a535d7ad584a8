"""What to try next and what to believe: see `tuning.search`. Knows trials only by their results."""
