/* The sources that are compiled into both extensions. They have no variables,
 * so that nothing exists twice; tests/project/test_layering.py measures it.
 * Whatever else of _core is called here is called through its table (core.c).
 */
/* NOLINTBEGIN(bugprone-suspicious-include): once into each extension. */
#include "base/list.c"
#include "base/status.c"
/* NOLINTEND(bugprone-suspicious-include) */
