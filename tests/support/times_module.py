"""A module for trainings that tests write as text: it multiplies, and so brings numbers near FP16's limit."""

TIMES = """
class Times(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor
"""
