"""Running simulations: queues and controllers in Python, experiments, grids, responsiveness."""
