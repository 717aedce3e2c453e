"""The same decisions on real devices: a Flower ServerApp that supplies the server's Trainer and Edge, and a ClientApp.

::

    server_app   what runs on the SuperLink          client_app   what runs on every device
    deployment   the run: Server with its parts      data         where a device's data comes from
    federation   who is there; messages out and in   messages     what is said
    edge         latencies, measured and smoothed    demo         all of it on one machine
                                                     credentials  TLS and keys for trying it out
"""
