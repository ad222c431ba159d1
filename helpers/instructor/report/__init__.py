"""What becomes of the points: the gradebook, a page for each student, the class as a whole, other systems."""
