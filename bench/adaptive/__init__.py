"""Stock Spark beside the plugin on emulated spinning disks."""
