"""Result records: statistics, frames, fronts, what users experience."""
