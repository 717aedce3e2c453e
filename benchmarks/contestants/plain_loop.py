"""A plain torch loop: module, torch.optim.SGD, one device after the other, then the mean."""

from protocol import Turns, flat, train_as_usual, work_from_command_line
from torch import nn

work = work_from_command_line()
module = work.model()
weights = flat(module)
turns = Turns(weights)
while turns.wait():
    samples, total = 0, 0
    for images, labels in zip(work.images, work.labels, strict=True):
        nn.utils.vector_to_parameters(weights.clone(), module.parameters())
        samples += train_as_usual(module, images, labels, work)
        total = total + flat(module)
    weights = total / len(work.images)
    turns.done(samples, weights)
