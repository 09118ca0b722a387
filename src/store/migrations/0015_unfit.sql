-- SPDX-License-Identifier: Apache-2.0
-- Why the driver is not to be tried on its program again: '' nothing is against it, 'unvouched' on its owner's word only,
-- 'never'; and the sentence that says why.

ALTER TABLE leases ADD COLUMN unfit TEXT NOT NULL DEFAULT '';
ALTER TABLE leases ADD COLUMN unfit_why TEXT NOT NULL DEFAULT '';
