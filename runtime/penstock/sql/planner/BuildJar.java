package penstocksql;

import java.io.File;
import java.io.FileOutputStream;
import java.util.Iterator;
import java.util.Map;
import java.util.HashMap;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;

import org.codehaus.commons.compiler.CompilerFactoryFactory;
import org.codehaus.commons.compiler.ICompiler;
import org.codehaus.commons.compiler.util.resource.FileResource;
import org.codehaus.commons.compiler.util.resource.MapResourceCreator;
import org.codehaus.commons.compiler.util.resource.Resource;

/** Compile Java sources into a jar with Janino, because a Java runtime has no compiler. Arguments: the jar, then the sources. */
public class BuildJar {
    public static void main(String[] arguments) throws Exception {
        ICompiler compiler = CompilerFactoryFactory.getDefaultCompilerFactory(BuildJar.class.getClassLoader()).newCompiler();
        Map classes = new HashMap();
        compiler.setClassFileCreator(new MapResourceCreator(classes));
        compiler.setSourceVersion(8);
        compiler.setTargetVersion(8);
        Resource[] sources = new Resource[arguments.length - 1];
        for (int i = 0; i < sources.length; i++) {
            sources[i] = new FileResource(new File(arguments[i + 1]));
        }
        compiler.compile(sources);
        ZipOutputStream jar = new ZipOutputStream(new FileOutputStream(arguments[0]));
        for (Iterator names = classes.keySet().iterator(); names.hasNext();) {
            String name = (String) names.next();
            jar.putNextEntry(new ZipEntry(name));
            jar.write((byte[]) classes.get(name));
        }
        jar.close();
    }
}
