"""Result records: statistics, frames, fronts, quality of applications."""
