"""An EvalRun's life, decided purely: from spec, status, what was observed and the time to what is to be done."""
