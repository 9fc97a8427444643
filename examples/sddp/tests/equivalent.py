"""The deterministic equivalent of a case, written without looking at the Rust sources: SipHash-1-3, the opening tree,
the scenario tree as one sparse linear program, solved by SciPy. Prints the least cost in M$ with 12 digits.

usage: equivalent.py CASE.toml
"""

import math
import sys
import tomllib

import numpy
import scipy.optimize
import scipy.sparse

MASK = (1 << 64) - 1


def siphash13(k0, k1, message):
    """Aumasson & Bernstein 2012, with one round for each word and three at the end."""

    def rotate(x, by):
        return ((x << by) | (x >> (64 - by))) & MASK

    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[1] = rotate(v[1], 13) ^ v[0]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & MASK
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & MASK
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & MASK
            v[1] = rotate(v[1], 17) ^ v[2]
            v[2] = rotate(v[2], 32)

    assert len(message) % 8 == 0
    words = [int.from_bytes(message[at : at + 8], "little") for at in range(0, len(message), 8)]
    for word in words + [(len(message) & 255) << 56]:
        v[3] ^= word
        rounds(1)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(3)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def hash_of(seed, purpose, *words):
    return siphash13(seed, purpose, b"".join(word.to_bytes(8, "little") for word in words))


def normal(seed, stage, opening, index):
    u = [((hash_of(seed, 1, stage, opening, index, part) >> 11) + 0.5) * 2.0**-53 for part in (0, 1)]
    return math.sqrt(-2 * math.log(u[0])) * math.cos(2 * math.pi * u[1])


def openings(case):
    """[stage][opening]: inflows in m³/s."""
    n = len(case["reservoir"])
    correlation = numpy.array(case.get("correlation", numpy.eye(n)))
    factor = numpy.linalg.cholesky(correlation)
    seed = case.get("opening_seed", 0)
    tree = [[numpy.array(case["stage"][0]["inflow"])]]
    for number, stage in enumerate(case["stage"][1:], start=1):
        mean, sigma = numpy.array(stage["inflow"]), numpy.array(stage["deviation"])
        draws = []
        for opening in range(case["openings"]):
            z = numpy.array([normal(seed, number, opening, i) for i in range(n)])
            draws.append(mean * numpy.exp(sigma * (factor @ z) - sigma**2 / 2))
        tree.append(draws)
    return tree


def least_cost(case):
    reservoirs, plants = case["reservoir"], case.get("thermal", [])
    names = [reservoir["name"] for reservoir in reservoirs]
    tree = openings(case)
    cost, bounds, rows, columns, values, sides = [], [], [], [], [], []

    def variable(price, low, high):
        cost.append(price)
        bounds.append((low, high))
        return len(cost) - 1

    def equation(terms, side):
        for column, value in terms:
            rows.append(len(sides))
            columns.append(column)
            values.append(value)
        sides.append(side)

    def node(number, weight, before):
        """Adds a node and all below it; `before` is what each reservoir holds: a number or a variable."""
        stage = case["stage"][number]
        worth = (1 + case.get("discount_rate", 0.0)) ** (-stage["hours"] / 8760)
        for inflow in tree[number]:
            p = weight / len(tree[number])
            volume = stage["hours"] * 3600 / 1e6
            price = p * stage["hours"] / 1e6
            held = [variable(0, r["minimum"], r["maximum"]) for r in reservoirs]
            turbined = [variable(0, 0, r["turbine"]) for r in reservoirs]
            spilled = [variable(0, 0, r["spill"]) for r in reservoirs]
            excess = [variable(p * volume * case["excess_cost"] / 1e6, 0, None) for _ in reservoirs]
            thermal = [variable(price * k["cost"], k.get("minimum", 0), k["maximum"]) for k in plants]
            deficit = variable(price * case["deficit_cost"], 0, None)
            for i, reservoir in enumerate(reservoirs):
                terms = [(held[i], 1.0)]
                for way in (turbined, spilled, excess):
                    terms.append((way[i], volume))
                    terms += [(way[j], -volume) for j, r in enumerate(reservoirs) if r.get("downstream") == names[i]]
                side = volume * inflow[i]
                if before is None:
                    side += reservoir["initial"]
                else:
                    terms.append((before[i], -1.0))
                equation(terms, side)
            power = [(turbined[i], r["productivity"]) for i, r in enumerate(reservoirs)]
            equation(power + [(k, 1.0) for k in thermal] + [(deficit, 1.0)], stage["demand"])
            if number + 1 < len(case["stage"]):
                node(number + 1, p * worth, held)

    node(0, 1.0, None)
    matrix = scipy.sparse.csr_array((values, (rows, columns)), shape=(len(sides), len(cost)))
    found = scipy.optimize.linprog(cost, A_eq=matrix, b_eq=sides, bounds=bounds, method="highs-ds")
    assert found.success, found.message
    return found.fun


if __name__ == "__main__":
    if sys.argv[1] == "--hash":
        print(hash_of(*map(int, sys.argv[2:])))
    else:
        with open(sys.argv[1], "rb") as file:
            print(f"{least_cost(tomllib.load(file)):.12g}")
