"""How a plan is carried out: Ray, engines, progress."""
