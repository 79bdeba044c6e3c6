"""The verbs of a letter's life, one file a step: capture, judge (the model's), hold, claim, redrive, retain."""
