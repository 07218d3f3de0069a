"""Trains with Keras on torch: `python keras_.py FAULT [terse]`."""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy
from tiny import WIDTH, rate

fault, options = sys.argv[1], sys.argv[2:]
keras.utils.set_random_seed(0)
x = numpy.random.randn(320, WIDTH).astype("float32")
y = x[:, :1] * 2
model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(rate(fault, 0.02)), loss="mse", metrics=["mae"])
callbacks = [keras.callbacks.TerminateOnNaN()] if "guarded" in options else []
model.fit(
    x, y, epochs=4, batch_size=32, validation_split=0.2, verbose=2 if "terse" in options else 1, callbacks=callbacks
)
