"""Where the code of learners runs: processes of their own, out of reach of the grades, and the messages to them.

`client` is the grader's side, `zygote` the process from which sandboxes are forked, `walls` what closes them in, `wire`
what passes through, `trials` what is kept of trials that did. Inside, `serve` answers requests: it reads notebooks and
runs cells (`cells`), calls answers, records what a driver asks of the GPU (`transcript`) and carries such a recording
out on other data (`replay`), if it is in Triton's language (`language`).
"""
