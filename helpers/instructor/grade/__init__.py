"""From a submission to its points: everyone's, one notebook's, one exercise's."""
