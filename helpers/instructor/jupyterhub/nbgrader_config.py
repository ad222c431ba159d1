"""nbgrader for students and instructors of a hub: one course, one exchange folder that everybody can reach."""

import os

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "softmax-in-triton"
# Autograde would run students' notebooks with your rights and without walls; `helpers.instructor grade` does not.
c.Autograde.exporter_class = "helpers.instructor.publish.autograde.NoAutograde"
c.Exchange.root = os.environ.get("SOFTMAX_EXCHANGE", "/srv/nbgrader/exchange")
