package org.pellucid.spark;

import java.util.LinkedHashMap;
import java.util.Map;

/** Keeps as many entries as it may, those that were asked for last: of stages, of which no end is known here. */
final class BoundedMap<K, V> extends LinkedHashMap<K, V> {
    private static final long serialVersionUID = 1;
    private final int most;

    BoundedMap(int most) {
        super(16, 0.75f, true);
        this.most = most;
    }

    @Override
    protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
        return size() > most;
    }
}
