"""Certificates and keys for a federation: for trying TLS and authenticated nodes out, or as a start.

``python -m fedclade.deployment.flower.credentials FOLDER --host NAME-OR-ADDRESS --nodes 6`` writes

::

    ca.crt                     what SuperNodes and users check the SuperLink by
    server.pem, server.key     the SuperLink's own
    node-0, node-0.pub, …      a SuperNode's private key, and the public one that is registered
"""

import argparse
import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAYS = 365
PEM, NO_PASSWORD = serialization.Encoding.PEM, serialization.NoEncryption()


@dataclass(frozen=True)
class Credentials:
    """A folder of them."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The certificate that SuperNodes and users trust."""
        return self.folder / "ca.crt"

    def superlink_options(self) -> list[str]:
        """What a SuperLink is started with."""
        files = {"ca-certfile": "ca.crt", "certfile": "server.pem", "keyfile": "server.key"}
        words = [word for name, file in files.items() for word in (f"--ssl-{name}", str(self.folder / file))]
        return [*words, "--enable-supernode-auth"]

    def node_key(self, node: int) -> Path:
        """A SuperNode's private key; its public key is beside it."""
        return self.folder / f"node-{node}"


def make_credentials(folder: Path, host: str, nodes: int) -> Credentials:
    """An authority, a certificate for the host (and this machine), and a key for each node; nothing is overwritten."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority_key = ec.generate_private_key(ec.SECP384R1())
    authority = _certificate("fedclade", "fedclade", authority_key, authority_key, [])
    key = ec.generate_private_key(ec.SECP384R1())
    certificate = _certificate(host, "fedclade", key, authority_key, [host, "localhost", "127.0.0.1"])
    _write(folder / "ca.crt", authority.public_bytes(PEM))
    _write(folder / "server.pem", certificate.public_bytes(PEM))
    _write(folder / "server.key", key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, NO_PASSWORD))
    for node in range(nodes):
        own = ec.generate_private_key(ec.SECP384R1())
        private = own.private_bytes(PEM, serialization.PrivateFormat.OpenSSH, NO_PASSWORD)
        public = own.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        _write(folder / f"node-{node}", private)
        _write(folder / f"node-{node}.pub", public)
    return Credentials(folder)


def _certificate(
    subject: str,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    signing_key: ec.EllipticCurvePrivateKey,
    hosts: list[str],
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)])
        builder = builder.add_extension(names, critical=False)
    else:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # signs certificates
        builder = builder.add_extension(usage, critical=True)
    return builder.sign(signing_key, hashes.SHA384())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def main() -> None:
    """Write a folder of credentials."""
    parser = argparse.ArgumentParser(prog="python -m fedclade.deployment.flower.credentials", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1", help="name or address by which the SuperLink is reached")
    parser.add_argument("--nodes", type=int, default=1, help="keys to make")
    words = parser.parse_args()
    print(make_credentials(words.folder, words.host, words.nodes).folder)


if __name__ == "__main__":
    main()
