"""The signer that the options of `evalrun attest` name: a key, or an identity."""

from dataclasses import dataclass
from pathlib import Path

from evalrun_attest.keys import SigningKey
from evalrun_attest.signatures import Signer, check_keyless_extra
from evalrun_cli.attestation.identity_tokens import NO_IDENTITY, choose_source
from evalrun_runtime.exits import BadInputError


@dataclass(frozen=True)
class SignerOptions:
    """Options that say who signs."""

    key: Path | None
    sigstore: bool = False
    identity_token_file: Path | None = None
    interactive: bool = False
    trust_config: Path | None = None

    def signer(self) -> Signer:
        """Return the signer. An identity is requested at once, so that a missing identity shows before work is done.

        Raises:
            BadInputError: the options name no signer or several, or there is no such key or identity.
        """
        if (self.key is None) != self.sigstore:
            raise BadInputError("name one signer: --key FILE, or --sigstore for the identity of this environment")
        if self.key is not None:
            if self.identity_token_file is not None or self.interactive or self.trust_config is not None:
                raise BadInputError("--identity-token-file, --interactive and --trust-config belong to --sigstore")
            return SigningKey.read(self.key)
        return self._keyless()

    def _keyless(self) -> Signer:
        check_keyless_extra()
        from sigstore.errors import Error
        from sigstore.oidc import IdentityError, Issuer, IssuerError, detect_credential

        from evalrun_attest.keyless import KeylessSigner, TrustRoot

        root = TrustRoot.fetch() if self.trust_config is None else TrustRoot.read(self.trust_config)

        def detect() -> str | None:
            try:
                return detect_credential()
            except IdentityError as error:
                raise BadInputError(f"{NO_IDENTITY}: {error}") from error

        def sign_in() -> str:
            try:
                return str(Issuer(root.config.signing_config.get_oidc_url()).identity_token())
            except (Error, IssuerError, OSError) as error:
                raise BadInputError(f"--interactive: {root.where}: nobody signed in: {error}") from error

        source = choose_source(self.identity_token_file, interactive=self.interactive, detect=detect, sign_in=sign_in)
        signer = KeylessSigner(root, source)
        if not self.interactive:
            signer.read_token()
        return signer
