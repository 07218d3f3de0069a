"""The tuned learning rates of the families, for each model and optimizer: the middle of those that train best."""

LR = {
    "gpt": {"sgd": 0.8, "momentum": 0.1, "adam": 0.006},
    "cnn": {"sgd": 0.06, "momentum": 0.008, "adam": 0.002},
    "recommender": {"sgd": 2.0, "momentum": 0.2, "adam": 0.015},
    "rnn": {"sgd": 0.2, "momentum": 0.02, "adam": 0.01},
    "autoencoder": {"sgd": 0.7, "momentum": 0.12, "adam": 0.005},
}
