"""From a plan to a launch, whose arguments are given by name."""
