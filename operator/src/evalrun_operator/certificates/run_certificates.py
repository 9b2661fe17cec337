"""Certificates of a run's parts, limited to what each part does.

A sandbox's certificate, for example, is no client certificate.
"""

from evalrun_api import names
from evalrun_cluster.objects import RunIdentity
from evalrun_operator.certificates.issuing import Usage, issue


def new_certificates(run: RunIdentity, seed: str) -> dict[str, str]:
    """Return the TLS entries of a new Secret, by key.

    Args:
        run: the run of the parts; the certificates are valid from its creation on.
        seed: random, stored nowhere.
    """

    def service(part: str) -> str:
        return names.service_host(names.component(run.name, part), run.namespace)

    parts = {
        names.AGGREGATOR: Usage([service(names.AGGREGATOR)]),
        names.JUDGE: Usage([service(names.JUDGE)]),
        names.SANDBOX: Usage([service(names.SANDBOX)], calls=False),
        names.GENERATOR: Usage(),
        names.OPERATOR: Usage(),
    }
    issued = issue(f"evalrun {run.uid}", parts, run.created, seed)
    held = {names.AUTHORITY_KEY: issued.authority}
    for part, certificate in issued.by_part.items():
        held |= dict(zip(names.certificate_keys(part), (certificate.chain, certificate.key), strict=True))
    return held
