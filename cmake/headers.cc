// SPDX-License-Identifier: Apache-2.0
//
// Nothing: an object library that compiles headers needs a source.
