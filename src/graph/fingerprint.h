// SPDX-License-Identifier: Apache-2.0
//
// A graph in sixteen digits, to tell whether two are the same. A pure function.
#pragma once

#include <string>

#include "thimble/graph.h"

namespace thimble {

// The same for graphs that compute the same from the same state, whatever their
// batch: ops with names, attributes and wiring; values with names, roles,
// storage, axes, initial values and shapes, but for the capacities of axes.
// Hexadecimal digits of a SHA-256.
std::string Fingerprint(const Graph& graph);

}  // namespace thimble
