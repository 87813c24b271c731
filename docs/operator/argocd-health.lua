-- Health of FlinkJobs and FlinkSnapshots for Argo CD; goes into argocd-cm under
--   resource.customizations.health.penstock.dev_FlinkJob
--   resource.customizations.health.penstock.dev_FlinkSnapshot
-- Reads nothing but standard conditions and observedGeneration, so it need not change when the operator does.
local health = { status = "Progressing", message = "waiting for the operator" }
if obj.status == nil or obj.status.conditions == nil then
  return health
end
if obj.status.observedGeneration ~= nil and obj.metadata.generation ~= nil
    and obj.status.observedGeneration < obj.metadata.generation then
  health.message = "the operator has not seen this generation yet"
  return health
end
local conditions = {}
for _, condition in ipairs(obj.status.conditions) do
  conditions[condition.type] = condition
end
local function is_true(kind)
  return conditions[kind] ~= nil and conditions[kind].status == "True"
end
if is_true("Stalled") then
  health.status = "Degraded"
  health.message = conditions["Stalled"].reason .. ": " .. (conditions["Stalled"].message or "")
elseif is_true("Ready") then
  health.status = "Healthy"
  if conditions["Ready"].reason == "Suspended" then
    health.status = "Suspended"
  end
  health.message = conditions["Ready"].message or ""
else
  local ready = conditions["Ready"]
  if ready ~= nil then
    health.message = ready.message ~= "" and ready.message or ready.reason
  end
end
return health
