"""How an answer is run, and what is seen of it: a learner's process has all of this, and finds no answer here."""
