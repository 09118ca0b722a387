// SPDX-License-Identifier: Apache-2.0
#include "gpu/probe.h"

#include "gpu/probe_client.h"
#include "gpu/serve.h"

namespace sublet::gpu {

int serve_probe(int socket, Sampler& sampler) {
  constexpr std::size_t max_command = 256;
  return serve_lines(socket, max_command, [&](std::string_view line) -> std::optional<std::string> {
    const auto id = decode_snapshot_command(line);
    if (!id) return std::nullopt;
    const Watch watch(socket);
    return encode_snapshot(*id, sampler.take());
  });
}

}  // namespace sublet::gpu
