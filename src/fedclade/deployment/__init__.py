"""The same decisions on real devices. They differ from a simulation in the fleet alone.

::

    run            one run: config, transport, server, and the files that only real devices have
    fleet          the Fleet: plans and questions become messages
    uploads        one round of messages: who is called when, what arrives
    transport      what carries messages must do, and what the messages mean
    register       who device 0, 1, … is
    measured_edge  the Edge: latencies, measured and smoothed, or played back
    flower/        the first transport, over Flower
"""
