-- SPDX-License-Identifier: Apache-2.0
-- Turns --vram into shards (1 shard = 1 GiB) and refuses more than one card has. Set `card_gib` to your cards' size.
local card_gib = 24
function slurm_job_submit(job, partitions, uid)
  local size
  for _, entry in pairs(job.spank_job_env or {}) do size = entry:match("sublet_vram=(%w+)$") or size end
  if size == nil then return slurm.SUCCESS end
  local number, unit = size:match("^(%d+)(%a*)$")
  local gib = tonumber(number) / ((unit or ""):lower():sub(1, 1) == "m" and 1024 or 1)
  if gib > card_gib then slurm.log_user("--vram=%s is more than a card has (%d GiB)", size, card_gib) return slurm.ERROR end
  local wanted = {"gres:shard:" .. math.ceil(gib)}
  for other in (job.tres_per_node or ""):gmatch("[^,]+") do
    if not other:match("^gres[:/]shard") then wanted[#wanted + 1] = other end
  end
  job.tres_per_node = table.concat(wanted, ",")
  return slurm.SUCCESS
end
function slurm_job_modify() return slurm.SUCCESS end
