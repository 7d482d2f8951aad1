# Sourced by the two recipes that train on traces. Gated, data: frontal films, both sections, no references to prior studies.
# As many regions as have room in the 1,024 tokens of stage 3 (--max-response-length, its default), abnormal ones first.
# Ours: the splits of MIMIC-CXR, on which stage 1 trains; 512 tokens of 32 x 32 pixels a film; no patient in both stages
# (TRAIN_PART, set by the recipe).
MAKE_DATA=".venv/bin/radverl data chest_imagenome --root chest-imagenome-dataset-1.0.0 --mimic-root mimic-cxr-jpg-2.1.0 \
--reports mimic-cxr-2.1.0 --splits-of mimic --target both --priors drop --split train val --max-pixels 524288 --train-part $TRAIN_PART"
