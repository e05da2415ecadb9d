"""The GI/G/m station: arrivals and services known by their mean and variability only.

`allocation paper`, Eq. 2, without the stray λ̃ in front of the second term (with it, the result would change with the
unit of time):

    L = λ/μ + φ · (ca² + cs²)/2 · (L_M/M/m − λ/μ)

φ = 1 is the paper's. `correction` is the refinement of W. Whitt, "Approximations for the GI/G/m queue", Production and
Operations Management 2(2), 1993, Section 2.4 (his φ, φ₁ to φ₄, ψ, γ): it matters where variability is below 1 and
servers are several.
"""

from __future__ import annotations

import math

from lavant.core.kernels import kernel
from lavant.models.erlang import waiting_requests


@kernel
def requests(load: float, servers: int, arrival_scv: float, service_scv: float, refined: bool) -> float:
    """L: requests at a station, those in service included; infinite if the load is too much for the servers.

    >>> round(requests(2.0, 3, 1.0, 1.0, False), 6)
    2.888889
    """
    if load >= servers:
        return math.inf
    factor = 0.5 * (arrival_scv + service_scv)
    if refined:
        factor *= correction(load / servers, servers, arrival_scv, service_scv)
    return load + factor * waiting_requests(load, servers)


@kernel
def correction(utilisation: float, servers: int, arrival_scv: float, service_scv: float) -> float:
    """Whitt's φ: by how much the mean wait differs from the one that only the sum of the variabilities gives."""
    mean_scv = 0.5 * (arrival_scv + service_scv)
    if utilisation <= 0.0 or mean_scv <= 0.0:
        return 1.0
    idle, m = 1.0 - utilisation, float(servers)
    gamma = min(0.24, idle * (m - 1.0) * (math.sqrt(4.0 + 5.0 * m) - 2.0) / (16.0 * m * utilisation))
    phi1 = 1.0 + gamma
    phi3 = (1.0 - 4.0 * gamma) * math.exp(-2.0 * idle / (3.0 * utilisation))
    psi = 1.0 if mean_scv >= 1.0 else min(1.0, 0.5 * (phi1 + phi3)) ** (2.0 * (1.0 - mean_scv))
    if arrival_scv >= service_scv:
        share = 4.0 * (arrival_scv - service_scv) / (4.0 * arrival_scv - 3.0 * service_scv)
        return share * phi1 + (1.0 - share) * psi
    share = 0.25 * (service_scv - arrival_scv) / mean_scv
    return share * phi3 + (1.0 - share) * psi
