"""Ways to run one device's local SGD fast; each gives what the plain loop gives."""
