"""Certificates for one test run."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority with its files in a directory.

    Attributes:
        certificate: File with its certificate.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = directory / f"{name}.crt"
        signed = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_signs(), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def issue(self, address: str) -> tuple[Path, Path]:
        """Makes a certificate for a server at an IP address, or of a name. Returns its file and that of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "redis")])
        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(address))
        except ValueError:
            name = x509.DNSName(address)
        names = x509.SubjectAlternativeName([name])
        signed = (
            self._builder(subject, key.public_key())
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        files = self._directory / "server.crt", self._directory / "server.key"
        files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            # Python 3.13 asks for both, and for what the key of an authority is for.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def _signs() -> x509.KeyUsage:
    """Returns that a key signs certificates, and does nothing else."""
    uses = ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"]
    others = dict.fromkeys([*uses, "crl_sign", "encipher_only", "decipher_only"], False)
    return x509.KeyUsage(key_cert_sign=True, **others)
