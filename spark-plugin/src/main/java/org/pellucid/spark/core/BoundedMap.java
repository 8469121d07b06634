package org.pellucid.spark.core;

import java.util.LinkedHashMap;
import java.util.Map;

/** A map that keeps the most recently used entries, such as those of stages, whose end an executor does not see. */
public final class BoundedMap<K, V> extends LinkedHashMap<K, V> {
    private static final long serialVersionUID = 1;
    private final int capacity;

    public BoundedMap(int capacity) {
        super(16, 0.75f, true);
        this.capacity = capacity;
    }

    @Override
    protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
        return size() > capacity;
    }
}
