// SPDX-License-Identifier: Apache-2.0
// What of Asio and Beast is no template, compiled once instead of in every file that uses them; see sublet.cmake.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
