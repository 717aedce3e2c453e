"""A plain torch loop: module, torch.optim.SGD, one device after the other, then the mean."""

from protocol import Turns, flat, tested, train_as_usual, work_from_command_line
from torch import nn

work = work_from_command_line()
module = work.model()
weights = flat(module)
turns = Turns(weights)
while turns.wait():
    samples, total = 0, 0
    for images, labels in work.train:
        nn.utils.vector_to_parameters(weights.clone(), module.parameters())
        samples += train_as_usual(module, images, labels, work)
        total = total + flat(module)
    weights = total / len(work.train)
    if work.evaluate:
        nn.utils.vector_to_parameters(weights.clone(), module.parameters())
        scores = [tested(module, *device) for device in work.test]
    turns.done(samples, weights)
