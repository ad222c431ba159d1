"""What learners have noted next to their notebooks: one who has solved everything, and one at the beginning."""

from helpers import check

WHOLE = {
    **{name: exercise.points for name, exercise in check.EXERCISES.items()},
    "counted": {"single_tile": [1.0, 1.0], "online": [2.0, 1.0], "row_loss": [1.0, 0.0]},
    "speeds": {"online": {"gpu": "NVIDIA L4", "of_copy": {"65536 × 4096 fp32": 0.64, "2048 × 131072 fp32": 0.7}}},
    "mistakes": {"single_tile": ["Every program takes row 0."], "online": ["l is <never> rescaled."]},
    "predictions": {"eager softmax": {"loads": [4, 5.004, "counted"], "stores": [3, 3.003, "counted"]}},
}
HALF = {name: WHOLE[name] for name in ("overflow", "eager", "single_tile")} | {"counted": {"single_tile": [1.0, 1.0]}}
