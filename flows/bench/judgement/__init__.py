"""`venus bench judgement`: how well turns and overlaps are judged on made conversations, against plain voice activity detection.

`script` reads what is said, `sound` makes audio and truth of it, `models` asks the real models, `world` runs the fold over both under a
policy, `score` compares with the truth, `sweep` does so for many policies, `report` and `picture` show it. docs/judgement.md defines all.
"""
