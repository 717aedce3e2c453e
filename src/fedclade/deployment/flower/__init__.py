"""Flower as a transport: a ServerApp that runs fedclade's server, and a ClientApp for every device.

::

    server_app   what runs on the SuperLink          client_app   what runs on every device
    federation   the Transport over Flower's Grid    data         where a device's data comes from
    messages     how messages are packed             demo         all of it on one machine
                                                     credentials  TLS and keys for trying it out
"""
